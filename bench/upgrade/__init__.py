"""An upgrade of a running installation, rehearsed by processes: the version before this one, and clients of both."""
