"""What a server of kernels imports first: it ends with the worker that started it, even if a notebook stopped it."""

from ppbook.build.forked import end_with_parent

end_with_parent()
