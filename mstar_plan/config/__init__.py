"""The config door: YAML files and `key=value` words go in, one frozen, checked dataclass comes out."""

from mstar_plan.config.loading import Section, load, narrow, options, read_option

__all__ = ["Section", "load", "narrow", "options", "read_option"]
