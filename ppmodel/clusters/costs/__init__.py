"""Costs of operations and transfers, and the memory of stages, from one GPU's work to what a simulation knows.

| step | modules |
|---|---|
| the operations of a layer on one GPU: work, bytes, collectives | `work`, `transformer` |
| seconds of a kernel and of a collective on a system | `roofline`, `collectives` |
| a model's layers as columns: kernels, collectives, bytes; their seconds | `layers` |
| what runs between collectives, and cells of two operations on two streams | `units`, `pairs` |
| how a model is divided among GPUs and stages; what replicas share | `partition`, `data_parallel` |
| stages as columns: seconds, bytes, parameters; messages between them | `stages`, `transfers` |

`runs` lays the stages of many runs side by side; `totals` counts parameters and arithmetic of a whole model.
"""

from ppmodel.clusters.costs.collectives import Collective, Group, collective_s, group_of
from ppmodel.clusters.costs.data_parallel import persistent_bytes
from ppmodel.clusters.costs.partition import check_layout, microbatch_sequences, slowest_over_mean, stage_blocks
from ppmodel.clusters.costs.roofline import Kernels, kernels_s
from ppmodel.clusters.costs.stage_costs import Offload, cell_streams_of, model_costs, stages
from ppmodel.clusters.costs.totals import model_flops, parameters
from ppmodel.clusters.costs.transfers import buffer_bytes, message_bytes
from ppmodel.clusters.costs.transformer import block_operations, embedding_operations, head_operations, logits_bytes
from ppmodel.clusters.costs.work import PARTS, Kernel, Work
