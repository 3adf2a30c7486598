"""Parameters of notebooks, and settings of claims: what a user may give, checked before anything runs."""

from ppbook.parameters.cell import Parameter, check, check_cell, declared, fitting, parse, substitutes
from ppbook.parameters.kinds import KINDS, shown
from ppbook.parameters.setting import SettingSpec, load_setting
