"""Turns the models of `learnloop_api.kinds` into CustomResourceDefinitions (`make crds`)."""
