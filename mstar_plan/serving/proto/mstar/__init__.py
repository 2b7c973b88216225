"""Generated gRPC stubs: mstar."""
