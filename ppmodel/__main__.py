from ppmodel.cli import run

run()
