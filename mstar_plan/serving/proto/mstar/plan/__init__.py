"""Generated gRPC stubs: plan."""
