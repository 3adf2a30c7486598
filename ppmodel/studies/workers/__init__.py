"""Run the chunks of sweeps and plans here, in processes, or on Dask.

With them come the versions that all of them must have, and the progress that a terminal shows.
"""
