"""One module a command of `mstar-plan`; each is imported only when its command runs."""
