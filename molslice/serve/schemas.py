"""What requests and answers of the JSON API contain."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "Atom",
    "Domain",
    "ExplainAnswer",
    "ExplainRequest",
    "FileStatus",
    "Health",
    "ModelCard",
    "PredictAnswer",
    "PredictRequest",
    "Problem",
    "Row",
    "Target",
    "Uncertainty",
]

Smiles = Annotated[str, Field(examples=["CCO"])]


class PredictRequest(BaseModel):
    """Molecules to predict."""

    model_config = ConfigDict(extra="forbid", strict=True)

    smiles: Smiles | list[Smiles] = Field(description="one SMILES, or a list")
    model: str | None = Field(None, description="name of a model of /models; by default the first")
    interval: float | None = Field(
        None, gt=0, lt=1, description="probability that an interval, or a set of classes, holds the truth"
    )
    domain: bool = Field(False, description="compare with the training molecules of the model")


class ExplainRequest(BaseModel):
    """A molecule whose prediction is explained."""

    model_config = ConfigDict(extra="forbid", strict=True)

    smiles: Smiles
    model: str | None = Field(None, description="name of a model of /models; by default the first")
    target: str | None = Field(None, description="name of a target; by default the first")
    method: Literal["gradients", "shapley"] = Field(
        "gradients", description="integrated gradients, or Shapley values of masked atoms, which take longer"
    )


class Target(BaseModel):
    """A target of a model."""

    name: str
    unit: str = Field(description="empty for a target without a unit")
    column: str = Field(description="key of its predictions, and column in files")


class Uncertainty(BaseModel):
    """How sure the prediction for a molecule is, for each target. What does not apply is null."""

    lower: dict[str, float | None] | None = Field(description="lower bound; null if it is infinite")
    upper: dict[str, float | None] | None = Field(description="upper bound; null if it is infinite")
    spread: dict[str, float | None] | None = Field(description="standard deviation of the prediction")
    calibrated: dict[str, float | None] | None = Field(description="calibrated probability of class 1")
    set: dict[str, list[int]] | None = Field(description="the classes that hold the truth")


class Domain(BaseModel):
    """How a molecule compares with the training molecules of the model."""

    in_domain: bool = Field(description="whether it is like them")
    reason: str = Field(description="why it is not; empty if it is")
    nearest_smiles: str = Field(description="the most similar training molecule")
    nearest_similarity: float = Field(description="Tanimoto similarity of the Morgan counts, from 0 to 1")


class Row(BaseModel):
    """The prediction for one molecule."""

    smiles: str
    values: dict[str, float | None] | None = Field(description="prediction of each target; null if it failed")
    uncertainty: Uncertainty | None = Field(None, description="null unless an interval is asked for")
    domain: Domain | None = Field(None, description="null unless it is asked for")
    error: str | None = Field(description="why there is no prediction")


class PredictAnswer(BaseModel):
    """The predictions, one row for each SMILES, in their order."""

    model: str
    targets: list[Target]
    predictions: list[Row]


class Atom(BaseModel):
    """The contribution of an atom."""

    index: int = Field(description="place in the SMILES, from 0")
    element: str
    contribution: float
    standard_error: float | None = Field(None, description="of a sampled value")


class ExplainAnswer(BaseModel):
    """The contributions of the atoms, whose sum is the prediction minus the baseline."""

    smiles: str
    model: str
    target: str
    unit: str = Field(description="unit of all numbers; log-odds for classes")
    note: str | None = Field(description="what is explained, if it is not the prediction of the model")
    method: str
    prediction: float
    probability: float | None = Field(description="of class 1")
    baseline: float = Field(description="prediction for the saturated hydrocarbon with the same skeleton")
    sum: float
    sum_error: float
    tolerance: float
    largest_standard_error: float | None
    evaluations: int
    atoms: list[Atom]
    svg: str = Field(description="the contributions on the structure")


class ModelCard(BaseModel):
    """A model of the service."""

    name: str
    kind: str = Field(description="kind of the task, such as regression or classification")
    targets: list[Target]
    intervals: bool = Field(description="whether it has intervals or sets")
    domain: bool = Field(description="whether it has training molecules to compare with")
    explanations: bool = Field(description="whether its predictions can be explained")


class Health(BaseModel):
    """Whether the service answers requests."""

    status: Literal["ok", "unavailable"]
    version: str
    waiting: int = Field(description="molecules in the queue")


class FileStatus(BaseModel):
    """An uploaded file and its prediction."""

    id: str
    name: str
    model: str
    state: Literal["uploading", "waiting", "running", "done", "failed", "canceled"]
    rows: int = Field(description="rows predicted so far")
    share: float = Field(description="share of the file read so far, from 0 to 1")
    failed: int = Field(description="rows without a prediction, when it is done")
    columns: list[str] = Field(description="columns with predictions, when it is done")
    message: str = Field(description="what was found in the file, or why it cannot be predicted")


class Problem(BaseModel):
    """Why a request was refused."""

    detail: str
