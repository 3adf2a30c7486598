"""The oracle: today's numbers, texts and files, against which a change that must not alter them is compared.

It uses what users use, and nothing inside: `ppmodel.compare`, `simulate` and `plan`, the command line, and files of
``data/``. ``python -m tests.oracle record`` writes ``recorded/``; ``python -m tests.oracle compare`` says what differs.
"""
