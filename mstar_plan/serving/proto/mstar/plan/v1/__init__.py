"""Generated gRPC stubs: v1."""
