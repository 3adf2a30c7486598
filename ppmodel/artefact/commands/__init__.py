"""The commands of the artefact: claims, run, reproduce, notebooks; the command line loads them when asked."""
