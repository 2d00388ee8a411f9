"""Tasks: the loss, the metrics, and the meaning of a prediction. One file is one task.

`base.py` is the interface. `targets.py` describes the targets (names, units, classes, mean, spread), and
`metrics.py` computes errors in their units.

Imports: `molslice.config`, `molslice.model` and the packages below them.

To add a task, write `my_task.py` with a class `MyTask(Task)`. Its keyword-only parameters are read from the
section `training` of a configuration.
"""

from molslice.registry import Registry
from molslice.tasks.base import Task
from molslice.tasks.targets import TargetInfo

__all__ = ["TASKS", "TargetInfo", "Task"]

TASKS = Registry("molslice.tasks", Task, "task")
