"""What each kind of operation is called, and its colours in tables, pictures, traces and pages."""

from typing import NamedTuple

from ppmodel.ops import OpKind


class Looks(NamedTuple):
    """Words and looks of a kind of operation.

    Attributes
    ----------
    words : str
        What legends call it.
    colour : str
        A colour that stays apart from the others for colour-blind readers, too; seaborn's ``colorblind`` for most.
    traced : str
        A name of a colour that chrome://tracing knows; Perfetto chooses colours by the name of the slice.
    """

    words: str
    colour: str
    traced: str


KINDS = {
    OpKind.F: Looks("forward", "#56b4e9", "rail_response"),
    OpKind.B: Looks("backward", "#de8f05", "rail_idle"),
    OpKind.I: Looks("input gradient", "#ece133", "startup"),
    OpKind.W: Looks("weight gradient", "#cc78bc", "rail_load"),
    OpKind.S: Looks("output layer", "#8de5a1", "rail_animation"),
    OpKind.T: Looks("its gradients", "#d55e00", "bad"),
    OpKind.R: Looks("gradient all-reduce", "#949494", "generic_work"),
    OpKind.O: Looks("optimizer step", "#029e73", "good"),
    OpKind.G: Looks("gather of weights", "#0173b2", "thread_state_iowait"),
    OpKind.D: Looks("drop of weights", "#E8E8E8", "grey"),
}
