"""The schedules: every module in this folder registers its own; they are named nowhere else.

Shared modules register nothing: `registry` itself and `options`; `rounds`, `phases` and `building_block`, three ways to
write an order; `loops`, for several stages per rank; `own_files`, for users' files; and `cases`.
"""

from importlib import import_module
from pkgutil import iter_modules

from ppmodel.schedules.own_files import register_file
from ppmodel.schedules.registry import build, entries, get, names, small

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
