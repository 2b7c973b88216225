"""The planning service over gRPC: the wire, the server and a client that needs no torch."""
