"""Generated gRPC stubs: inference."""
