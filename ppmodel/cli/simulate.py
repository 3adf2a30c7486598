"""ppmodel simulate: one iteration of one schedule."""

from ppmodel.cli import arguments, text
from ppmodel.cli.commands import command


@command("simulate")
@arguments.schedule()
@arguments.run
@arguments.in_output("trace", "FILE", "Also write a trace for Perfetto or chrome://tracing.", arguments.Output())
@arguments.plot_option
@arguments.launch_option
@arguments.json_option("Print one JSON object.")
def simulate_command(name, file, pp, microbatches, p2p, allreduce, trace, plot, launch, as_json, **options):
    """Simulate one iteration of a schedule with communication.

    NAME is a schedule, with options as in interleaved-1f1b:chunks=4, or your own file. With a layout (--layout, or
    --tp, --dp and so on), the whole iteration is timed: collectives, gradient reduction and optimizer step included.

    Idle time is printed as a share of the ranks' total time, of their computing time (as Megatron-LM's authors do) and
    of the longest span from a rank's first operation to its last (as Zero Bubble's do). zb-1p and zb-2p search for an
    order that suits the times given (or --times) and the share of activations that the model keeps for weight gradients
    (or --held).
    """
    from ppmodel.cli.simulated import simulated_lines
    from ppmodel.studies.points import simulate

    costs = arguments.asked_costs(options)
    run = simulate(arguments.asked_case(name, file, options), pp, microbatches, p2p=p2p, allreduce=allreduce, **costs)
    result = run.to_dict() | {
        "operations": run.timeline.graph.num_operations,
        "peak_activations_by_rank": run.peak_activations_by_rank.tolist(),
    }
    if run.layout is not None:
        result["memory_by_rank"] = run.memory.to_dict("records")
    lines = []
    if launch is not None:
        from ppmodel.cli.launched import launched
        from ppmodel.clusters.specs.launcher import load_launcher

        result["launch"], lines = launched(launch, load_launcher(launch), run.point)
    if trace is not None:
        result |= {"trace": trace, "trace_events": run.to_trace(trace)}
    if plot is not None:
        arguments.write_figure(run.plot(), plot)
    if as_json:
        return text.say_json(result)
    return text.say([*simulated_lines(result, run), *lines])
