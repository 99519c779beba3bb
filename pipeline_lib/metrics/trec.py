"""Rankings and judgements in the plain-text formats of trec_eval and its relatives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pipeline_lib.errors import InputError
from pipeline_lib.metrics.checks import finite_scores, labels_of_length
from pipeline_lib.metrics.ordering import descending_order
from pipeline_lib.metrics.segments import Segments


def write_trec_run(
    path: str | Path, qid: ArrayLike, docids: ArrayLike, scores: ArrayLike, tag: str
) -> None:
    """Write a ranking as lines ``qid Q0 docid rank score tag``.

    Queries stand in the order of their first appearance, documents by descending score from rank 1
    with ties in file order. Scores are written so that they read back exactly. trec_eval ignores
    the rank and orders tied scores by document id; where ties matter, write scores without them.

    Parameters
    ----------
    path : str or Path
        File to write, UTF-8.
    qid, docids, scores : array-like of shape (n,)
        Query, document id (unique within a query) and finite score of each row.
    tag : str
        Name of the run.

    Raises
    ------
    InputError
        If lengths differ, a score is not finite, an id or the tag is empty or contains white
        space, or a document is listed twice for a query.
    """
    values = finite_scores(scores, ndim=1)
    segments, documents = _listed_documents(qid, docids, len(values))
    _tokens(np.array([tag]), "tag")
    with Path(path).open("w", encoding="utf-8", newline="\n") as file:
        for query, start, length in zip(segments.ids, segments.starts, segments.lengths):
            rows = segments.order[start : start + length]
            ranked = rows[descending_order(values[None, rows])[0]]
            file.writelines(
                f"{query} Q0 {documents[row]} {rank} {values[row].item()!r} {tag}\n"
                for rank, row in enumerate(ranked, start=1)
            )


def write_qrels(path: str | Path, qid: ArrayLike, docids: ArrayLike, labels: ArrayLike) -> None:
    """Write relevance judgements as lines ``qid 0 docid label``, in file order.

    Parameters
    ----------
    path : str or Path
        File to write, UTF-8.
    qid, docids : array-like of shape (n,)
        Query and document id (unique within a query) of each row.
    labels : array-like of shape (n,)
        Whole-number relevance labels.

    Raises
    ------
    InputError
        If lengths differ, a label is no whole number, an id is empty or contains white space, or
        a document is listed twice for a query.
    """
    values = np.asarray(labels)
    if (
        values.ndim != 1
        or values.dtype.kind not in "biuf"
        or not np.array_equal(values, values // 1)
    ):
        raise InputError("labels are not whole numbers", expected="one integer label per document")
    segments, documents = _listed_documents(qid, docids, len(values))
    with Path(path).open("w", encoding="utf-8", newline="\n") as file:
        for query, start, length in zip(segments.ids, segments.starts, segments.lengths):
            file.writelines(
                f"{query} 0 {documents[row]} {int(values[row])}\n"
                for row in segments.order[start : start + length]
            )


def _listed_documents(
    qid: ArrayLike, docids: ArrayLike, length: int
) -> tuple[Segments, NDArray[np.str_]]:
    queries = labels_of_length(qid, length, name="qid")
    segments = Segments.from_ids(queries)
    _tokens(segments.ids, "qid")
    documents = _tokens(labels_of_length(docids, length, name="docids"), "docid")
    codes = np.unique(documents, return_inverse=True)[1]
    query_of_row = np.empty(length, dtype=np.int64)
    query_of_row[segments.order] = np.repeat(np.arange(len(segments)), segments.lengths)
    listed, first = np.unique(np.stack([query_of_row, codes]), axis=1, return_index=True)
    if listed.shape[1] < length:
        repeated = int(np.setdiff1d(np.arange(length), first)[0])
        raise InputError(
            f"document {str(documents[repeated])!r} is listed twice for query {queries[repeated]}",
            expected="document ids that are unique within a query",
        )
    return segments, documents


def _tokens(values: NDArray[Any], name: str) -> NDArray[np.str_]:
    tokens = values.astype(str)
    for token in np.unique(tokens):
        if not token or len(token.split()) != 1 or token != token.strip():
            raise InputError(f"{name} {str(token)!r}", expected="a name without white space")
    return tokens
