"""What the server takes and gives, as types: FastAPI makes its OpenAPI document of them."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from mixupmp.core.errors import check


@dataclass(frozen=True)
class Limits:
    """Bounds on each request and on the server's whole work.

    Parameters
    ----------
    body, rows, pixels
        Of one request: bytes, rows, and pixels of an image before it is resized.
    bodies
        Bytes of all bodies that are held at once.
    waiting
        Rows in the queue; beyond, requests are refused.
    batch
        Rows that are computed together.
    seconds
        From a request's headers to its answer.
    connections, header_seconds
        Connections that are open at once, and seconds for a request's headers.
    """

    body: int = 8 * 2**20
    rows: int = 1024
    pixels: int = 16_000_000
    bodies: int = 64 * 2**20
    waiting: int = 4096
    batch: int = 256
    seconds: float = 10.0
    connections: int = 256
    header_seconds: float = 10.0

    def __post_init__(self) -> None:
        for entry in fields(self):
            value = getattr(self, entry.name)
            check(value > 0, entry.name, value, "positive")
        check(self.waiting >= self.rows, "waiting", self.waiting, f"at least {self.rows}, the rows of one request")
        check(self.bodies >= self.body, "bodies", self.bodies, f"at least {self.body}, the bytes of one request")


class PredictRequest(BaseModel):
    """Rows to predict: finite numbers, nested as the model's inputs are, or one such row; or sentences.

    A model of several inputs takes an object with the rows of each by name. One of a table with categories or missing
    values takes numbers, text and null, each row by column name or in the order of the fit.
    """

    model_config = ConfigDict(extra="forbid")

    inputs: list[Any] | dict[str, Any] = Field(min_length=1, description="Rows of finite numbers, or sentences.")


class Prediction(BaseModel):
    """The answer to one row."""

    predicted: str = Field(description="The most probable class.")
    number: int = Field(ge=0, description="Its index among the classes.")
    confidence: float = Field(description="Its probability.")
    probabilities: list[float] = Field(description="Of each class: the mean over members, calibrated.")
    members: list[list[float]] = Field(description="Each member's own probabilities.")
    entropy: float = Field(description="Predictive entropy in nats: total uncertainty.")
    mutual_information: float = Field(description="In nats, between prediction and member: how far members disagree.")
    set: list[str] = Field(description="The prediction set; /metadata says what it guarantees.")
    accepted: bool = Field(description="False: abstain, and leave this row to a person.")
    score: float | None = Field(default=None, description="How strange the row is, by the score that /metadata names.")
    p_value: float | None = Field(default=None, description="The share of held-out rows whose score is as large.")
    flagged: bool | None = Field(default=None, description="Whether the row is unlike the held-out ones.")


class PredictResponse(BaseModel):
    """The answers to the rows of a request, in their order.

    `warnings` says what a table's columns hold that the fit has not seen: a new category, or values that are missing
    where none were.
    """

    predictions: list[Prediction]
    classes: list[str]
    coverage: float
    warnings: list[str] = []


class Refusal(BaseModel):
    """Why a request was not answered."""

    detail: str


class Guarantee(BaseModel):
    """What prediction sets, abstention and flags guarantee."""

    coverage: float = Field(description="Of the prediction sets.")
    risk: float = Field(description="The share of wrong answers among accepted rows that is tolerated.")
    rows: int = Field(default=0, description="Held-out rows that the guarantee rests on.")
    threshold: float | None = Field(default=None, description="The least confidence that is accepted.")
    guarantee: str = Field(description="The guarantee as a sentence.")
    false_alarm: float = Field(default=0.05, description="The share of rows like the held-out ones that is flagged.")
    flags: str = Field(default="none", description="What flags guarantee.")
    score: str | None = Field(default=None, description="What flags go by.")
    score_threshold: float | None = Field(default=None, description="The largest score that is not flagged.")


class Networks(BaseModel):
    """How many of a posterior's networks are there."""

    there: int
    wanted: int


class InputField(BaseModel):
    """One input of a model of tokens or of several inputs."""

    name: str = Field(description="Empty: by position.")
    shape: list[int]
    dtype: str


class Metadata(BaseModel):
    """What is served."""

    title: str
    version: str
    runtime: str
    classes: list[str]
    input_shape: list[int]
    takes: Literal["numbers", "sentences", "sounds", "columns"] = "numbers"
    input_fields: list[InputField] = Field(description="Of tokens and of several inputs; else empty.")
    members: int
    networks: Networks
    notes: list[str]
    decisions: Guarantee
    limits: Limits


class Example(BaseModel):
    """A held-out image for the page."""

    image: str = Field(description="A PNG as a data URI.")
    label: str
