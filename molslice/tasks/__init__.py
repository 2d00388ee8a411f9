"""Tasks: the loss, the metrics, and the meaning of a prediction. One file, one task, one configuration name.

A batch and the output of a model come in; a loss, results in the units of the targets and metrics go out.
Contents: `base.py` is the interface. `targets.py` describes the targets (names, units, classes, mean,
spread), `metrics.py` computes errors in their units, and `standard_errors.py` their standard errors.
Imports: `molslice.config`, `molslice.model` and the packages below them.
To add one: write `my_task.py` with a class `MyTask(Task)`. Its keyword-only parameters are options of the
section `training` of a configuration, and `kinds` declares the targets that it takes.
Reason: training, evaluation and prediction use the same definition of a task.
"""

from molslice.registry import Registry
from molslice.tasks.base import Task
from molslice.tasks.targets import TargetInfo

__all__ = ["TASKS", "TargetInfo", "Task"]

TASKS = Registry("molslice.tasks", Task, "task")
