"""Results: tidy tables of every run, statistics, storage."""

import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pandas.api.types import is_object_dtype

from fedbandit_jax import _checks
from fedbandit_jax._files import read_checked, write_checked
from fedbandit_jax.results import diagnostics, pareto, selection, statistics
from fedbandit_jax.results.numbers import Table, share_in_words

if TYPE_CHECKING:
    from fedbandit_jax.results.plots import Plots

SETTING = ("dataset", "algorithm", "label", "clients", "arms", "horizon", "noise")  # and the hyperparameters
RUN = (*SETTING, "user", "seed")
MESSAGES = ("uploads", "downloads", "scalars_up", "scalars_down", "bits_up", "bits_down")


class Results:
    """Curves of all runs at their checkpoints, the diagnostics of their phases, and how they were made."""

    def __init__(self, curves: pd.DataFrame, phases: pd.DataFrame, settings: dict[str, Any]) -> None:
        self._curves = silent_as_zero(curves)
        self._phases = phases
        self.settings = settings

    @classmethod
    def from_tables(cls, tables: Sequence[tuple[pd.DataFrame, pd.DataFrame]], settings: dict[str, Any]) -> "Results":
        """Put together tidy (curves, phases) of each program; phases may be empty."""
        ordered = missing_as_nan(pd.concat([curves for curves, _ in tables], ignore_index=True))
        trailing = ["round", *dict.fromkeys(c for curves, _ in tables for c in statistics.metric_columns(curves))]
        ordered = ordered[[c for c in ordered.columns if c not in trailing] + trailing]
        phases = [found for _, found in tables if len(found)]
        told = missing_as_nan(pd.concat(phases, ignore_index=True)) if phases else pd.DataFrame()
        return cls(ordered, told, settings)

    def to_pandas(self) -> pd.DataFrame:
        """A row per run and checkpoint."""
        return self._curves.copy()

    def final(self) -> pd.DataFrame:
        """A row per run, at the last round."""
        return self._curves[self._curves["round"] == self._curves["horizon"]].reset_index(drop=True)

    def phases(self) -> pd.DataFrame:
        """A row per run and phase: length, active arms, questions, eigenvalues, good event and more."""
        return self._phases.copy()

    def phase_means(self, columns: str | Sequence[str] = "few") -> pd.DataFrame:
        """Means of all diagnostics of each setting and phase, over the runs that reach it, and the count of these.

        Names of some diagnostics as `columns` give these alone; "all" tells every setting and 95 % intervals as well.
        Of a flag, such as good_event, the mean is the share of runs. It is an error if no algorithm plays in phases.
        """
        if not len(self._phases):
            labels = ", ".join(self._curves["label"].unique())
            raise ValueError(f"no phases to average: {labels} play round by round, FedConPE and LinPE in phases")
        told = [] if isinstance(columns, str) else _checks.as_list("columns", columns)
        if not told:
            _checks.choice("columns", columns, selection.COLUMNS)
        for name in told:
            diagnostics.check("columns", name, self._phases)
        settings = selection.told_settings(self._curves, columns if isinstance(columns, str) else "few")
        names = told or diagnostics.columns_of(self._phases)
        return Table(diagnostics.means(self._phases, settings, names, intervals=columns == "all"))

    def summary(
        self,
        metric: str = "regret",
        interval: str = "auto",
        columns: str = "few",
        confidence: float = statistics.CONFIDENCE,
    ) -> pd.DataFrame:
        """Mean of a final metric and its 95 % or other interval, per setting.

        Args:
            metric: one of `metrics`.
            interval: "t" is mean ± t s / sqrt(U) of the U users' means. "auto" is that too where users are alike or
                fewer than five; the more they differ, the longer the side on which extreme users may be missing. It
                gives no interval (NaN) where a few users carry most of the mean, as none could be trusted: `note` says
                so, also beside the intervals of "t" and "log". "log" is the t-interval of the mean's logarithm, by the
                jackknife.
            columns: "few" are the label, what varies, count, mean, low and high, and if some mean has no interval also
                the median over users, `median_low` and `median_high`, which hold the median of all users whatever
                their distribution (from six users on), and `note`. "all" are these, every setting and the standard
                deviation.
            confidence: of the intervals.

        Returns:
            A table with a row per setting.

        Example:
            >>> results.summary("conversations", columns="all")  # doctest: +SKIP
        """
        _checks.choice("metric", metric, self.metrics)
        _checks.choice("interval", interval, statistics.INTERVALS)
        confidence = _checks.real("confidence", confidence, 0, 1, "()")
        groups = self.final().groupby(self.setting_columns(), dropna=False, sort=False)
        found = groups.apply(lambda g: statistics.mean_interval(g, metric, interval, confidence), include_groups=False)
        more = groups.apply(lambda g: statistics.median_and_note(g, metric, confidence), include_groups=False)
        few = [c for c in found if c != "sd"] + (list(more) if more["note"].any() else [])
        told = [*selection.told_settings(self._curves, columns), *(few if columns == "few" else [*found, *more])]
        return Table(found.astype({"count": int}).join(more).reset_index()[told])

    def quantiles(self, metric: str = "regret", levels: Sequence[float] = (0.1, 0.5, 0.9)) -> pd.DataFrame:
        """Quantiles of a metric over the runs of each setting, at every checkpoint: columns q10, q50, q90."""
        _checks.choice("metric", metric, self.metrics)
        levels = [_checks.real("levels", level, 0, 1) for level in _checks.as_list("levels", levels)]
        if not levels:
            _checks.fail("levels", levels, "it must name at least one quantile")
        if len(set(levels)) < len(levels):
            _checks.fail("levels", levels, "its values must differ")
        return statistics.quantile_table(self._curves, [*self.setting_columns(), "round"], metric, levels)

    def exponent(
        self,
        parameter: str,
        metric: str = "regret",
        label: str | None = None,
        confidence: float = statistics.CONFIDENCE,
    ) -> pd.DataFrame:
        """Fitted p of final metric = factor * parameter^p, with a 95 % or other interval, for each label and place.

        A hyperparameter that is swept leaves the label: FedConPE N=1 and FedConPE N=2 are FedConPE. The interval is a
        t-interval over users, by the jackknife, with as many degrees of freedom as users count. Where a few users carry
        a mean there may be none (NaN), and `note` says so.
        """
        _checks.choice("metric", metric, self.metrics)
        confidence = _checks.real("confidence", confidence, 0, 1, "()")
        final = self.final().dropna(subset=metric)
        statistics.check_varied("parameter", parameter, statistics.varied_parameters(final, self.setting_columns()))
        lines = statistics.swept_lines(final, parameter)
        if label is not None:
            _checks.choice("label", label, dict.fromkeys(name for name, _, _ in lines))
        rows = []
        for name, _, group in lines:
            if label in (None, name):
                place = {c: group[c].iloc[0] for c in statistics.places(group) if c != parameter}
                rows.append({"label": name} | place | statistics.power_law(group, parameter, metric, confidence))
        table = pd.DataFrame(rows)
        return table if len(table) and table["note"].any() else table.drop(columns="note", errors="ignore")

    @property
    def metrics(self) -> list[str]:
        """What some run tells at its checkpoints: the columns behind "round"."""
        return [c for c in statistics.metric_columns(self._curves) if self._curves[c].notna().any()]

    def setting_columns(self) -> list[str]:
        """The columns that tell one setting from another."""
        return statistics.setting_columns(self._curves)

    def only(self, *labels: str, **conditions: Any) -> "Results":
        """The runs of some labels and settings: only(clients=4, N=[1, 2], algorithm="FedConPE").

        A condition is a setting, "user" or "seed", and a value or a list of them; N=None are algorithms without N. An
        algorithm that is named is not asked for what it does not have: only(N=1, algorithm=["FedConPE", "LinUCB"]).
        """
        for label in labels:
            _checks.choice("label", label, self._curves["label"].unique())
        wanted = ({"label": list(labels)} if labels else {}) | conditions
        return Results(*selection.chosen(self._curves, self._phases, wanted), self.settings)

    def compare(
        self, label: str, metric: str = "regret", confidence: float = statistics.CONFIDENCE, columns: str = "few"
    ) -> pd.DataFrame:
        """How many percent `label` lies below each other algorithm at the last round, with a 95 % or other interval.

        Paired: both play the same users, arm sets and seeds, and only runs that both have count. The intervals are
        t-intervals over users: of the ratio's logarithm, as in `exponent`, and of the difference. `better_for` needs no
        mean: for how many users `label` is lower, and the exact interval of the share of such users. Where a few users
        carry most of a mean, the percentage has no interval (NaN), and `note` says so; `typical_below`, among all
        columns, is how far `label` lies below for a typical user, by the ratio of geometric means.

        Args:
            label: which algorithm.
            metric: one of `metrics`.
            confidence: of the intervals.
            columns: "few", or "all" for the label, all of the place, the pairs, the `difference` (label's mean less
                the other's), `better` and `worse` as counts, and the rest of the above.

        Returns:
            A table with a row per other algorithm and place.

        Example:
            >>> results.compare("FedConPE")  # doctest: +SKIP
        """
        _checks.choice("metric", metric, self.metrics)
        confidence = _checks.real("confidence", confidence, 0, 1, "()")
        _checks.choice("columns", columns, selection.COLUMNS)
        final = self.final()
        _checks.choice("label", label, final["label"].unique())
        if final.loc[final["label"] == label, metric].isna().all():
            _checks.fail("metric", metric, f"{label} does not count it")
        where = statistics.places(final)
        rows = []
        for place, group in final.groupby(where, sort=False, dropna=False):
            table = group.pivot_table(index=["user", "seed"], columns="label", values=metric, sort=False)
            if label not in table:
                continue
            for other in table.columns.drop(label):
                pairs = table[[label, other]].dropna()
                if len(pairs):
                    found = statistics.paired(pairs, confidence)
                    rows.append(dict(zip(where, place, strict=True)) | {"label": label, "other": other} | found)
        table = pd.DataFrame(rows)
        if columns == "all" or not len(table):
            return Table(table)
        few = [*statistics.varied_places(final), "other", "percent_below", "low", "high", "better_for"]
        few += ["note"] if table["note"].any() else []
        return Table(table.assign(better_for=[share_in_words(row) for row in rows])[few])

    def pareto(
        self,
        x: str = "communication",
        y: str = "regret",
        confidence: float = statistics.CONFIDENCE,
        columns: str = "few",
    ) -> pd.DataFrame:
        """Who is on the Pareto front of two final metrics, of which less is better: a row per setting.

        `front` is "on the front" if every other setting of the same place is known to have more of one metric,
        "dominated" if some other is known to have no more of either and less of one, and "undecided" where paired 95 %
        or other intervals do not tell; that for "dominated" is widened for the number of others. `by` names who
        dominates it, or may. Means are in columns of the metrics' names; columns="all" tells their intervals as well.
        """
        _checks.choice("x", x, self.metrics)
        _checks.choice("y", y, self.metrics)
        if x == y:
            _checks.fail("y", y, "it must be another metric than x")
        confidence = _checks.real("confidence", confidence, 0, 1, "()")
        _checks.choice("columns", columns, selection.COLUMNS)
        final = self.final()
        table = pareto.front_table(final, x, y, confidence)
        few = ["label", *statistics.varied_places(final), x, y, "front", "by"]
        return Table(table[few] if columns == "few" else table)

    @property
    def plot(self) -> "Plots":
        from fedbandit_jax.results.plots import Plots  # matplotlib is slow to import and not always wanted

        return Plots(self)

    def save(self, folder: str | Path) -> Path:
        """Write curves.parquet, phases.parquet and settings.json into a folder, with their checksums in SHA256SUMS."""
        folder = _checks.folder("folder", folder)
        if (folder / "manifest.json").exists():
            _checks.fail("folder", str(folder), "it is a sweep's folder, which has its runs already; use another")
        with _checks.reasons("folder", str(folder)):
            (folder / "settings.json").unlink(missing_ok=True)  # a kill must not leave new curves with old settings
            contents = {
                "curves.parquet": numbers_as_words(self._curves).to_parquet(),
                "phases.parquet": numbers_as_words(self._phases).to_parquet(),
                "settings.json": json.dumps(self.settings, indent=2).encode() + b"\n",
            }
            write_checked(folder, contents)
        return folder

    @classmethod
    def load(cls, folder: str | Path) -> "Results":
        """Read what `save` wrote, or the folder that a sweep got as `out`."""
        folder = _checks.path("folder", folder)
        if (folder / "manifest.json").is_file() or any(folder.glob("curves-*.parquet")):
            from fedbandit_jax.results.folders import load  # which makes Results itself

            return load(folder)
        missing = [n for n in ("curves.parquet", "phases.parquet", "settings.json") if not (folder / n).is_file()]
        if missing:
            raise FileNotFoundError(
                f"{_checks.in_one_line(str(folder))} holds no saved results: {', '.join(missing)} not found"
            )
        settings = read_saved(folder / "settings.json", json.loads)
        curves, phases = (read_saved(folder / f"{name}.parquet", read_table) for name in ("curves", "phases"))
        return cls(words_as_numbers(curves), words_as_numbers(phases), settings)

    def __repr__(self) -> str:
        labels = ", ".join(self._curves["label"].unique())
        return f"Results({len(self.final())} runs of {labels})"


def read_saved(
    path: Path, parse: Callable[[bytes], Any], mend: str = "restore it from a copy, or save the results again"
) -> Any:
    """Parsed content of a file; a damaged one is named, also where there is no checksum."""
    content = read_checked(path, mend)
    try:
        return parse(content)
    except Exception as error:
        raise ValueError(f"{path} is damaged: {mend}") from error


def read_table(content: bytes) -> pd.DataFrame:
    return pd.read_parquet(io.BytesIO(content))


def silent_as_zero(curves: pd.DataFrame) -> pd.DataFrame:
    """Who sends no scalar sends no message: what others count of theirs is 0, not missing, in a table with them."""
    missing = [c for c in MESSAGES if c in curves and curves[c].isna().any()]
    if not missing or not {"communication", "label"} <= {*curves}:
        return curves
    silent = (curves.groupby("label")["communication"].transform("max") == 0).to_numpy()
    return curves.assign(**{c: curves[c].mask(silent, curves[c].fillna(0)) for c in missing})


def missing_as_nan(table: pd.DataFrame) -> pd.DataFrame:
    """None in a column of numbers, such as sigma, as NaN."""
    objects = [c for c in table if is_object_dtype(table[c])]
    numeric = [c for c in objects if not table[c].map(lambda x: isinstance(x, str)).any()]
    return table.astype(dict.fromkeys(numeric, float))


def numbers_as_words(table: pd.DataFrame) -> pd.DataFrame:
    """Columns where words and numbers meet, such as C=0.5 and C="realised", as words: parquet wants one type."""
    mixed = [c for c in table if is_object_dtype(table[c])]
    return table.assign(**{c: table[c].map(str, na_action="ignore") for c in mixed})


def words_as_numbers(table: pd.DataFrame) -> pd.DataFrame:
    """Undo `numbers_as_words`, in the columns of hyperparameters."""
    for name in table.select_dtypes(exclude=["number", "bool"]).columns.difference(RUN):
        table[name] = table[name].where(table[name].notna(), np.nan)  # parquet's None
        numbers = pd.to_numeric(table[name], errors="coerce")
        if numbers.notna().any():
            table[name] = table[name].astype(object).where(numbers.isna(), numbers.astype(object))
    return table
