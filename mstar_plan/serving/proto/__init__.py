"""Generated gRPC stubs: proto."""
