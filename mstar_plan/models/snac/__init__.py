"""SNAC, a multi-scale neural audio codec (Siuzdak et al. 2024): encode, decode, and decode as a stream, exactly."""
