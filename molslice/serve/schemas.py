"""What requests and answers of the JSON API contain."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Smiles = Annotated[str, Field(description="a molecule", examples=["CCO"])]


Conditions = Annotated[
    dict[str, bool | float | str] | None,
    Field(
        description="value of each condition that the model takes, for all molecules",
        examples=[{"temperature": 298.15}],
    ),
]


class PredictRequest(BaseModel):
    """Molecules to predict."""

    model_config = ConfigDict(extra="forbid", strict=True)

    smiles: Smiles | list[Smiles] = Field(description="one SMILES, or a list", examples=[["CCO", "c1ccccc1"]])
    model: str | None = Field(None, description="name of a model of /models; by default the first")
    interval: float | None = Field(
        None, gt=0, lt=1, description="probability that an interval, or a set of classes, holds the truth"
    )
    domain: bool = Field(False, description="compare with the training molecules of the model")
    goals: list[str] | None = Field(
        None,
        min_length=1,
        description="goals whose probability is computed, one for each target at most",
        examples=[["logS > -4"]],
    )
    conditions: Conditions = None


class ChooseRequest(BaseModel):
    """Molecules of which diverse ones are chosen."""

    model_config = ConfigDict(extra="forbid", strict=True)

    smiles: list[Smiles] = Field(description="the molecules", examples=[["CCO", "c1ccccc1"]])
    scores: list[Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(
        description="how good each is, such as its probability of a goal", examples=[[0.5, 0.25]]
    )
    number: int = Field(gt=0, description="how many to choose")
    model: str | None = Field(None, description="name of a model of /models; by default the first")


class Choice(BaseModel):
    """A molecule that is chosen."""

    rank: int = Field(description="place in the order of the choice, from 1")
    similarity: float = Field(description="largest similarity to a molecule before it, from 0 to 1")


class ChooseAnswer(BaseModel):
    """The choice: one entry for each SMILES, in their order."""

    choices: list[Choice | None] = Field(description="null for a molecule that is not chosen")


class ExplainRequest(BaseModel):
    """A molecule whose prediction is explained."""

    model_config = ConfigDict(extra="forbid", strict=True)

    smiles: Smiles
    model: str | None = Field(None, description="name of a model of /models; by default the first")
    target: str | None = Field(
        None,
        description="name of a target; by default the first that has not several classes, if any; needed "
        "with a class if the model has several targets",
    )
    class_name: str | None = Field(
        None,
        alias="class",
        description="class to explain, of a target of three and more; by default the predicted class",
    )
    method: Literal["gradients", "shapley"] | None = Field(
        None,
        description="integrated gradients, or Shapley values of masked atoms, which take longer; by default "
        "gradients if they explain the prediction",
    )
    theme: Literal["light", "dark"] | None = Field(
        None,
        description="draw the structure alone, on a transparent background for a page of this theme; by "
        "default on white with title and scale",
    )
    conditions: Conditions = None


class Target(BaseModel):
    """A target of a model."""

    name: str = Field(description="name of the target, of several classes with the class")
    target: str = Field(description="name of the target alone")
    unit: str = Field(description="empty for a target without a unit", examples=["eV"])
    kind: str = Field(description="regression, classification or multiclass")
    column: str = Field(description="key of its predictions, and column in files")


class Uncertainty(BaseModel):
    """How sure the prediction for a molecule is, for each target. What does not apply is null."""

    lower: dict[str, float | None] | None = Field(description="lower bound; null if it is infinite")
    upper: dict[str, float | None] | None = Field(description="upper bound; null if it is infinite")
    spread: dict[str, float | None] | None = Field(description="standard deviation of the prediction")
    calibrated: dict[str, float | None] | None = Field(description="calibrated probability of class 1")
    set: dict[str, list[int | str]] | None = Field(
        description="classes in the prediction set, named if they have names"
    )


class Neighbor(BaseModel):
    """A training molecule that is similar to a molecule."""

    smiles: str = Field(description="its canonical SMILES")
    similarity: float = Field(description="Tanimoto similarity of the Morgan counts, from 0 to 1")
    measured: dict[str, float | None] | None = Field(
        description="its value of each target of one column; null if the folder of the model does not have "
        "the values"
    )


class Domain(BaseModel):
    """How a molecule compares with the training molecules of the model."""

    place: Literal["like the training molecules", "at the edge", "outside"] = Field(
        description="how far it is like them"
    )
    reason: str = Field(description="why it is not like them; empty if it is")
    is_training: bool = Field(description="whether it is a known training molecule")
    neighbors: list[Neighbor] = Field(description="the most similar training molecules, at most three")


class Row(BaseModel):
    """The prediction for one molecule."""

    smiles: str = Field(description="as in the request")
    values: dict[str, float | None] | None = Field(description="prediction of each target; null if it failed")
    classes: dict[str, str] | None = Field(
        None, description="predicted class of each target of several classes; null for a model without one"
    )
    uncertainty: Uncertainty | None = Field(None, description="null unless an interval is asked for")
    domain: Domain | None = Field(None, description="null unless it is asked for")
    probability: float | None = Field(None, description="of all goals; missing without goals")
    error: str | None = Field(description="why there is no prediction")


class PredictAnswer(BaseModel):
    """The predictions, one row for each SMILES, in their order."""

    model: str = Field(description="name of the model")
    targets: list[Target] = Field(description="the targets of the model")
    failed: int = Field(description="number of molecules without a prediction")
    notes: list[str] = Field(description="sentences about goals that no training value meets")
    predictions: list[Row] = Field(description="one row for each SMILES")


class NamedRow(Row):
    """The prediction for one row of a file."""

    name: str = Field(description="cell of the column with names; empty if there is none")
    conditions: dict[str, str] | None = Field(description="cell of each condition; null for a model without")


class FileRows(BaseModel):
    """The first rows of a file with their predictions."""

    model: str = Field(description="name of the model")
    targets: list[Target] = Field(description="the targets of the model")
    rows: int = Field(description="number of rows of the file, which may be more than `predictions` has")
    predictions: list[NamedRow] = Field(description="the first rows, with the nearest training molecule only")


class RowsRequest(BaseModel):
    """Rows of a file with predictions, and the format to write them in."""

    model_config = ConfigDict(extra="forbid", strict=True)

    format: Literal["csv", "sdf", "xlsx"] = Field(description="one of `formats` of /limits")
    rows: list[int] | None = Field(
        None,
        description="numbers of rows from 1, each once, in this order; by default all",
        examples=[[3, 1]],
    )
    columns: dict[str, list[str]] = Field(
        {}, description="further columns, a cell for each row", examples=[{"rank": ["1", "2"]}]
    )


class Atom(BaseModel):
    """The contribution of an atom."""

    index: int = Field(description="place in `smiles` of the answer, from 0")
    element: str = Field(description="symbol of the element")
    contribution: float = Field(description="part of the prediction minus the baseline")
    standard_error: float | None = Field(None, description="of a sampled value")
    group: int | None = Field(
        None,
        description="number of the group of atoms that were masked together and share their contribution",
    )


class Interval(BaseModel):
    """An interval of a prediction."""

    level: float = Field(description="probability that it holds the truth")
    lower: float | None = Field(description="null if it is infinite")
    upper: float | None = Field(description="null if it is infinite")


class Headline(BaseModel):
    """A prediction as /predict answers it."""

    label: str = Field(description="name of the target, for classes with the class")
    unit: str = Field(description="empty for a probability and without a unit")
    value: float = Field(description="the prediction")
    interval: Interval | None = Field(description="of a regression, if the model has intervals")


class ExplainAnswer(BaseModel):
    """The contributions of the atoms, whose sum is the prediction minus the baseline."""

    smiles: str = Field(
        description="as in the request; of a mixture its largest molecule, if the model predicts only that"
    )
    model: str = Field(description="name of the model")
    target: str = Field(description="name of the target")
    unit: str = Field(
        description="unit of all numbers below; log-odds for classes, and a logarithm if the model learned it"
    )
    class_name: str | None = Field(
        alias="class", description="whose log-odds are explained; of three and more the predicted class"
    )
    note: str | None = Field(description="what is explained, if it is not the prediction of the model")
    method: str = Field(description="gradients or shapley")
    headline: Headline = Field(description="the prediction")
    prediction: float = Field(description="what is explained")
    probability: float | None = Field(description="of the class")
    baseline: float = Field(description="prediction for the saturated hydrocarbon with the same skeleton")
    sum: float = Field(description="sum of the contributions")
    sum_error: float = Field(description="sum of the contributions, minus prediction plus baseline")
    tolerance: float = Field(description="stated bound of `sum_error`")
    largest_standard_error: float | None = Field(
        description="of the contributions; 0 for exact Shapley values, null for gradients"
    )
    standard_error_target: float | None = Field(description="at which sampling stops; null for gradients")
    converged: bool = Field(description="whether the largest standard error is not above the target")
    warning: str | None = Field(description="what to do if it is above the target")
    evaluations: int = Field(description="number of predictions that were computed")
    atoms: list[Atom] = Field(description="one entry for each atom, in the order of `smiles`")
    svg: str = Field(description="the contributions on the structure")


class ModelCard(BaseModel):
    """A model of the service."""

    name: str = Field(description="name in requests")
    kind: str = Field(
        description="kind of its targets, such as regression or classification; mixed if they differ"
    )
    targets: list[Target] = Field(description="what it predicts")
    intervals: bool = Field(description="whether it has intervals or sets")
    domain: bool = Field(description="whether it has training molecules to compare with")
    explanations: bool = Field(description="whether its predictions can be explained")
    method: str | None = Field(
        description="how by default: gradients take a second, shapley some; null without explanations"
    )
    measured_widths: dict[str, float] = Field(
        {},
        description="distance of the 5% and the 95% quantile of the measured values behind the intervals, by "
        "column: a 90% interval that is not narrower knows little more than their mean",
    )
    conditions: list[str] = Field(description="conditions that a prediction needs, such as a temperature")


class LimitsAnswer(BaseModel):
    """Sizes and counts beyond which a request is refused."""

    molecules: int = Field(description="molecules of a request")
    seconds: float = Field(description="time for a request, in the queue and in the model")
    body_bytes: int = Field(description="size of a request without a file")
    file_bytes: int = Field(description="size of a file, also after it is unpacked")
    file_rows: int = Field(description="rows of a file")
    formats: list[str] = Field(description="formats of files with predictions: xlsx needs openpyxl")


class Health(BaseModel):
    """Whether the service answers requests."""

    status: Literal["ok", "unavailable"] = Field(description="unavailable while no worker process runs")
    version: str = Field(description="version of molslice")
    waiting: int = Field(description="molecules in the queue")


class Refusal(BaseModel):
    """Rows that failed for the same kind of reason."""

    reason: str = Field(description="the reason, with … in place of numbers and quoted texts")
    count: int = Field(description="number of rows")


class FileStatus(BaseModel):
    """An uploaded file and its prediction."""

    id: str = Field(description="secret name of the file in later requests")
    name: str = Field(description="the name that the client gave, without folders")
    model: str = Field(description="name of the model")
    state: Literal["uploading", "waiting", "running", "done", "failed", "canceled"] = Field(
        description="done or failed at the end"
    )
    rows: int = Field(description="rows predicted so far")
    share: float = Field(description="share of the file read so far, from 0 to 1")
    failed: int = Field(description="rows without a prediction, when it is done")
    refusals: list[Refusal] = Field(description="rows without a prediction by reason, when it is done")
    columns: list[str] = Field(description="columns with predictions, when it is done")
    message: str = Field(description="what was found in the file, or why it cannot be predicted")


class Problem(BaseModel):
    """Why a request was refused."""

    detail: str = Field(description="the reason in one line")
