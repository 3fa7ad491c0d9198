"""One module for each verb of `kubectl learnloop`."""
