"""The status of a ModelDeployment, and when it is written."""
