"""ppmodel run, notebooks, smoke, reproduce, pdf: one notebook with your own parameters, one figure, the whole book."""

import json

import click

from ppbook.commands import BookCommand, command
from ppmodel.cli import arguments
from ppmodel.cli.listing import say_titles
from ppmodel.cli.text import say

cell_limit = arguments.option(
    "time-limit cell_limit", None, "Stop a cell that takes longer (default: wait).", arguments.seconds("above 0")
)
"""Decorator: time limit for a notebook cell."""


_FOLDER = arguments.Value("FOLDER", str, str.strip, "must name a folder", "pass a folder, or leave {option} out")


def out_folder(text):
    """Decorator: the folder that receives what is made."""
    return arguments.option("out", None, text, _FOLDER)


def parameters(text):
    """Decorator: values of a notebook's parameters, or of a setting's."""
    return click.option("-p", "--parameter", "given", nargs=2, multiple=True, metavar="NAME VALUE", help=text)


class _Run(BookCommand):
    """The command whose help lists the parameters of the notebook that is named before it."""

    def parse_args(self, ctx, args):
        ctx.obj = args[0] if args and not args[0].startswith("-") else None
        return super().parse_args(ctx, args)

    def format_options(self, ctx, formatter):
        super().format_options(ctx, formatter)
        if ctx.obj is None:
            return
        from ppbook.build.run import parameters_of
        from ppbook.parameters import shown

        with formatter.section(f"Parameters of {ctx.obj}, with their defaults"):
            rows = []
            for name, each in parameters_of(ctx.obj).items():
                about = f"{each.about}; {'each ' * each.several}{each.kind.rule.removeprefix('must be ')}".lstrip("; ")
                rows.append((click.wrap_text(f"{name} = {shown(each.value)}", formatter.width - 6, "", " " * 6), about))
            formatter.write_dl(rows)


@click.command("run", cls=_Run)
@click.argument("notebook")
@parameters("Set a parameter; may be repeated.")
@out_folder("Folder for notebook and results (default: the notebook's name).")
@cell_limit
def run_command(notebook, given, out, cell_limit):
    """Run one notebook, by name or file, with your own parameters.

    "ppmodel notebooks" lists them; "ppmodel run NOTEBOOK --help" lists the parameters of one.
    """
    from ppbook.build.run import run

    answer, folder = run(notebook, given, out, cell_limit)
    say(f"{answer}\n\nnotebook and results are in {folder}")


@command("notebooks")
def notebooks_command():
    """List the notebooks that "ppmodel run" can run."""
    from ppbook.build.run import notebook_names

    cells = {name: json.loads(path.read_text("utf-8"))["cells"] for name, path in sorted(notebook_names().items())}
    titles = {name: first["source"][0].removeprefix("# ").strip() for name, (first, *_) in cells.items()}
    say_titles(titles)


@command("smoke")
@out_folder("Folder for numbers and picture (default: results/smoke).")
def smoke_command(out):
    """Reproduce Table I and Figure 3 of the paper in half a minute: numbers published, ours, and whether they agree.

    The exit code is 1 if a number is not met.
    """
    from ppbook.build.smoke import smoke

    lines, passed = smoke(out)
    say("\n".join(lines))
    return 0 if passed else 1


@command("reproduce")
@arguments.option("system", "NAME|FILE", "Your system, in addition to the paper's.")
@arguments.option("model", "NAME|FILE", "Your model, instead of the paper's.")
@arguments.option("memory-limit", "SIZE", 'Memory that a rank may use, such as "64 GiB" (default: all).')
@arguments.option("gpus", "N", "GPUs of the plan with which your book begins.", arguments.count(2**20))
@arguments.option("global-batch", "N", "Sequences per iteration of that plan.", arguments.count(2**24))
@out_folder("Folder for the built book (default: book/_build, or a folder in it).")
@arguments.option("jobs", "N", "Notebooks to run at once (default: 2).", arguments.count(), default=2)
@cell_limit
def reproduce_command(out, jobs, cell_limit, **given):
    """Run every notebook and build the book, or a separate book for your own system or model."""
    from ppbook.build.reproduce import reproduce

    page = reproduce(out=out, jobs=jobs, time_limit=cell_limit, **given)
    say(f"the book is {page}")


@command("pdf")
@out_folder("Folder of the built book (default: book/_build).")
def pdf_command(out):
    """Print the built book as one PDF, next to its pages and linked from them; needs Chromium."""
    from ppbook.build.pdf import pdf

    count, path = pdf(out)
    say(f"{count} pages; the PDF is {path}")
