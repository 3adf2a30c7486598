"""Who computes what takes long, a sweep or a plan: this process, others of this machine, or those of a cluster.

With them come the versions that all of them must have, and the progress that a terminal shows.
"""
