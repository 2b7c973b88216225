"""Closed-loop evaluation: episodes of a controller in an environment, baselines, statistics, videos and reports."""
