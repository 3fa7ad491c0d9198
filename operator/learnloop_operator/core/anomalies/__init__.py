"""Anomalies in the returns of a run or of an arm that serves: the specification's rules, and rules that hold."""
