"""The commands of the artefact, such as claims, run and reproduce; the command line loads them on demand."""
