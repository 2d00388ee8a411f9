"""The sections of a configuration as typed, frozen values. `molslice.config` reads them from YAML."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from molslice.config.conversion import show
from molslice.files.processes import MAX_WORKERS
from molslice.model import AttentionChoice, ModelSpec
from molslice.types import DataSpec, MolsliceError

LENGTHS = ("max_steps", "max_epochs", "max_minutes")
EPOCHS_DIFFER = 0.02  # share by which epochs may differ in their number of batches
MAX_NODES = 100_000


@dataclass(frozen=True, slots=True)
class DataConfig:
    """A data set and its options.

    Attributes:
        name: Name of the data set in the registry.
        options: Its own options, the keyword-only parameters of its class.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StartConfig:
    """The trained model whose weights a run starts from.

    Attributes:
        model: A run folder, or the name of a model that ships with the package.
        sha256: Checksum of its `model.safetensors`. The run folder's configuration has it; another file is
            refused.
    """

    model: str
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class OptimizerConfig:
    """The optimizer and its learning rate schedule.

    Attributes:
        name: `adamw` (Loshchilov and Hutter 2019, arXiv 1711.05101), `radam`, which has a built-in warm-up
            (Liu et al. 2020, arXiv 1908.03265), or `muon`, which updates matrices by Muon (Liu et al. 2025,
            arXiv 2502.16982) and all other parameters by AdamW.
        lr: Learning rate at the end of the linear warm-up.
        weight_decay: Decoupled weight decay. Norms, biases and embeddings are not decayed.
        betas: Decay rates of the first and second moments; for matrices unused by `muon`, whose momentum is
            0.95.
        warmup_fraction: Length of the warm-up as a fraction of all steps; unused if `warmup_steps` is given.
        warmup_steps: Length of the warm-up in steps.
        schedule: Learning rate after the warm-up. `linear` and `cosine` decrease to `end_lr_fraction * lr`
            at the end of the training, `constant` stays at `lr`, `inverse_sqrt` is
            lr sqrt(warm-up steps / step) (Vaswani et al. 2017, section 5.3).
        end_lr_fraction: Final learning rate divided by `lr`; unused by `constant` and `inverse_sqrt`.
        gradient_clip: Maximum global norm of the gradient; None does not clip.
        ema_decay: Decay of the moving average of the weights; None does not average.
        layer_decay: Factor of the learning rate from each layer to the one below. The head has the full rate,
            the embeddings the smallest. None uses the same rate for all.

    Raises:
        MolsliceError: A value is outside of its range.
    """

    name: Literal["adamw", "radam", "muon"] = "adamw"
    lr: float = 1e-3
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.999)
    warmup_fraction: float = 0.05
    warmup_steps: int | None = None
    schedule: Literal["linear", "cosine", "constant", "inverse_sqrt"] = "linear"
    end_lr_fraction: float = 0.0
    gradient_clip: float | None = 5.0
    ema_decay: float | None = 0.999
    layer_decay: float | None = None

    def __post_init__(self) -> None:
        _require(self.lr > 0, "lr", self.lr, "a positive number")
        _require(self.weight_decay >= 0, "weight_decay", self.weight_decay, "zero or more")
        _require(0 <= self.warmup_fraction < 1, "warmup_fraction", self.warmup_fraction, "a number in [0, 1)")
        _require(0 <= self.end_lr_fraction <= 1, "end_lr_fraction", self.end_lr_fraction, "in [0, 1]")
        _require(all(0 <= beta < 1 for beta in self.betas), "betas", self.betas, "two numbers in [0, 1)")
        warmup, clip, decay = self.warmup_steps, self.gradient_clip, self.ema_decay
        _require(warmup is None or warmup >= 0, "warmup_steps", warmup, "zero or more, or null")
        _require(clip is None or clip > 0, "gradient_clip", clip, "a positive number or null")
        _require(decay is None or 0 < decay < 1, "ema_decay", decay, "a number in (0, 1) or null")
        fall = self.layer_decay
        _require(fall is None or 0 < fall <= 1, "layer_decay", fall, "a number in (0, 1] or null")


@dataclass(frozen=True, slots=True)
class TrainingConfig:
    """Length of the training, batches, validations and loss.

    Exactly one of `max_steps`, `max_epochs` and `max_minutes` must be given.

    Attributes:
        max_steps: Length of the training in optimizer steps.
        max_epochs: Length of the training in epochs. `auto` depends on the number of training rows, which is
            for fine-tuning: about 600 steps of 32 rows, and from 4 to 40 epochs.
        max_minutes: Length of the training in minutes. It is converted to steps by measuring the speed before
            the first step, and the run folder's configuration has that number of steps.
        token_budget: Maximum number of padded tokens in a batch, over all devices. A molecule has one token
            for each atom and one graph token.
        batch_size: Maximum number of rows (molecules, sequences) in a batch, over all devices.
        accumulate: Number of parts in which each device computes a batch, to save memory.
        valid_every_epochs: Epochs between validations; unused if `valid_every_steps` is given. The last step
            is always followed by a validation.
        valid_every_steps: Steps between validations.
        checkpoint_every_steps: Steps between checkpoints for resuming. None writes one at each validation
            only.
        early_stopping_patience: Number of validations without improvement after which training stops; None
            disables early stopping.
        compile: Whether to compile each layer of the encoder with `torch.compile`.
        fixed_shapes: Whether batches have at most twelve shapes. On a CUDA device steps are then captured as
            CUDA graphs. The molecules are in the memory of the device if they fit into a quarter of what is
            free; otherwise a thread of the host gathers the batches. None: on a CUDA device, for models and
            tasks that can. The run folder's configuration has what was chosen.
        mix_lengths: Whether a batch has rows of all lengths, which takes more padding, instead of similar
            lengths. On some thousand molecules it can lower the error by 2%. None: for models with batch
            norm, whose statistics need it.
        loss: Loss of regression. With `gaussian` the model also predicts a variance, from which a prediction
            has a spread; the loss is the negative log likelihood of a normal distribution. Classification
            uses cross-entropy.
        label_smoothing: Label smoothing of the cross-entropy over several classes.
        teacher: Run folder of the teacher, for the task `distillation`.
        label_weights: Weights of the families of labels, for the task `pretraining`: descriptors, quantum,
            charges, atoms, bonds. Families that are not named have the weight 0; None gives each the weight
            1.
        hidden_targets: Share of the targets of molecules that is left out in each step of `pretraining`.
        hidden_atoms: Share of the atoms whose features are hidden in the task `pretraining`.
        hidden_bonds: Share of the bonds whose features are hidden in the task `pretraining`.
        distance_weight: Weight of the loss of predicted distances of atoms, if the data have a geometry
            (`data.geometry`), for the task `molecule`.
        frozen_layers: Number of layers, from the input, that are not trained. With 1 or more the embeddings
            are frozen too; `all` trains the head only.

    Raises:
        MolsliceError: A value is outside of its range, or not exactly one length is given.
    """

    max_steps: int | None = None
    max_epochs: int | Literal["auto"] | None = None
    max_minutes: float | None = None
    token_budget: int = 8192
    batch_size: int = 256
    accumulate: int = 1
    valid_every_epochs: int = 1
    valid_every_steps: int | None = None
    checkpoint_every_steps: int | None = None
    early_stopping_patience: int | None = None
    compile: bool = False
    fixed_shapes: bool | None = None
    mix_lengths: bool | None = None
    loss: Literal["mae", "mse", "huber", "gaussian"] = "mae"
    label_smoothing: float = 0.0
    teacher: str | None = None
    label_weights: dict[str, float] | None = None
    hidden_targets: float = 0.15
    hidden_atoms: float = 0.15
    hidden_bonds: float = 0.15
    distance_weight: float = 0.1
    frozen_layers: int | Literal["all"] = 0

    def __post_init__(self) -> None:
        given = [name for name in LENGTHS if getattr(self, name) is not None]
        if len(given) != 1:
            names = " and ".join(given) or "none"
            raise MolsliceError(f"exactly one of {', '.join(LENGTHS)} must be given, found {names}")
        length = getattr(self, given[0])
        _require(length == "auto" or length > 0, given[0], length, "a positive number")
        for name in ("token_budget", "batch_size", "accumulate", "valid_every_epochs"):
            _require(getattr(self, name) >= 1, name, getattr(self, name), "1 or more")
        for name in ("valid_every_steps", "checkpoint_every_steps", "early_stopping_patience"):
            value = getattr(self, name)
            _require(value is None or value >= 1, name, value, "1 or more, or null")
        for name in ("hidden_targets", "hidden_atoms", "hidden_bonds"):
            _require(0 <= getattr(self, name) < 1, name, getattr(self, name), "a number in [0, 1)")
        frozen = self.frozen_layers
        _require(frozen == "all" or frozen >= 0, "frozen_layers", frozen, "zero or more, or all")


@dataclass(frozen=True, slots=True)
class TrainerConfig:
    """Hardware, processes and precision of a run.

    Attributes:
        accelerator: Accelerator of Lightning Fabric.
        devices: Number of devices of each node.
        num_nodes: Number of nodes.
        strategy: How processes share the training. `ddp`: each holds all weights. `fsdp`: each holds a part
            of each weight, gradient and moment, for models that do not fit on one device.
            `ddp_find_unused_parameters_true`: `ddp` for models of which a step does not use all weights.
            `auto` is `ddp` with more than one process.
        precision: float32, or mixed precision with bfloat16 or float16. With `bf16-weights`, the layers of
            encoders are in bfloat16, and the optimizer keeps float32 weights, which are evaluated and saved.
        num_threads: Number of CPU threads of each process. None: PyTorch's default, and at most four with a
            CUDA device, whose work more threads would delay.

    Raises:
        MolsliceError: A number is outside of its range.
    """

    accelerator: Literal["auto", "cpu", "gpu", "cuda", "mps"] = "auto"
    devices: int = 1
    num_nodes: int = 1
    strategy: Literal["auto", "ddp", "ddp_find_unused_parameters_true", "fsdp"] = "auto"
    precision: Literal["32", "bf16", "bf16-weights", "16"] = "32"
    num_threads: int | None = None

    def __post_init__(self) -> None:
        for name in ("devices", "num_nodes", "num_threads"):
            value = getattr(self, name)
            most = MAX_NODES if name == "num_nodes" else MAX_WORKERS
            allowed = value is None or 1 <= value <= most
            _require(allowed, name, value, f"a whole number from 1 to {most:,}")


@dataclass(frozen=True, slots=True)
class RunConfig:
    """The complete configuration of a run.

    Attributes:
        data: The data set.
        model: The model.
        attention: The attention of the model.
        task: Name of the task in the registry.
        optimizer: The optimizer and its schedule.
        training: Length of the training, batches, validations and loss.
        trainer: Hardware, processes and precision.
        start: The trained model whose weights the run starts from; None starts from random weights.
        seed: Seed of the initial weights, dropout, the order of rows and random augmentation.

    Raises:
        MolsliceError: The seed is negative.
    """

    data: DataConfig
    model: ModelSpec
    attention: AttentionChoice = field(default_factory=AttentionChoice)
    task: str = "molecule"
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    training: TrainingConfig = field(default_factory=lambda: TrainingConfig(max_epochs=100))
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    start: StartConfig | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        _require(self.seed >= 0, "seed", self.seed, "zero or more")

    def with_training(self, **settings: Any) -> "RunConfig":  # noqa: ANN401
        """Return the configuration with other settings of `training`."""
        return replace(self, training=replace(self.training, **settings))

    @property
    def mixes_lengths(self) -> bool:
        """Whether a batch has rows of all lengths."""
        asked = self.training.mix_lengths
        return self.model.has_batch_norm if asked is None else asked

    def model_data(self, data: DataSpec) -> DataSpec:
        """Return the properties of the data with what the loss needs; a geometry only if it is learned."""
        learns_distances = self.model.learns_distances and self.task == "molecule"
        return replace(
            data,
            predicts_variance=self.training.loss == "gaussian",
            has_geometry=data.has_geometry and learns_distances,
        )


def _require(holds: bool, name: str, value: object, expected: str) -> None:
    if not holds:
        raise MolsliceError(f"{name} is {show(value)}, expected {expected}")
