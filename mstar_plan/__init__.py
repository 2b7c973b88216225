"""Plan for robots on learned world models: walks, a runtime, planners and a gRPC service."""

__version__ = "0.1.0"
