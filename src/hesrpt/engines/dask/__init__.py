"""An engine that runs items on the workers of a Dask cluster."""
