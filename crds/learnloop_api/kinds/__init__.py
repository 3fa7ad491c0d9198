"""The five custom resources as pydantic models: the source of `crds/*.yaml` (`make crds`)."""
