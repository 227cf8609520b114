"""Evaluation protocols of frozen encoders: one package for each, and their metrics."""

from typing import TYPE_CHECKING

from stillmotion.utils.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from stillmotion.evaluation.clustering.config import ClusteringConfig as ClusteringConfig
    from stillmotion.evaluation.clustering.evaluate import ClusterResult as ClusterResult
    from stillmotion.evaluation.clustering.evaluate import evaluate_clustering as evaluate_clustering
    from stillmotion.evaluation.geometry.config import GeometryConfig as GeometryConfig
    from stillmotion.evaluation.geometry.evaluate import GeometryReport as GeometryReport
    from stillmotion.evaluation.geometry.evaluate import evaluate_geometry as evaluate_geometry
    from stillmotion.evaluation.linear_probe.classifiers import logistic_probe as logistic_probe
    from stillmotion.evaluation.linear_probe.config import LinearProbeConfig as LinearProbeConfig
    from stillmotion.evaluation.linear_probe.evaluate import LinearProbeReport as LinearProbeReport
    from stillmotion.evaluation.linear_probe.evaluate import evaluate_linear_probe as evaluate_linear_probe
    from stillmotion.evaluation.propagation.config import SequenceDataConfig as SequenceDataConfig
    from stillmotion.evaluation.propagation.evaluate import PropagationReport as PropagationReport
    from stillmotion.evaluation.propagation.evaluate import evaluate_propagation as evaluate_propagation
    from stillmotion.evaluation.retrieval.config import RetrievalConfig as RetrievalConfig
    from stillmotion.evaluation.retrieval.evaluate import RetrievalReport as RetrievalReport
    from stillmotion.evaluation.retrieval.evaluate import evaluate_retrieval as evaluate_retrieval
    from stillmotion.evaluation.static_dynamic.config import StaticDynamicEvalConfig as StaticDynamicEvalConfig
    from stillmotion.evaluation.static_dynamic.evaluate import StaticDynamicReport as StaticDynamicReport
    from stillmotion.evaluation.static_dynamic.evaluate import (
        evaluate_static_dynamic_sets as evaluate_static_dynamic_sets,
    )
    from stillmotion.evaluation.still_clips import StillClipsReport as StillClipsReport
    from stillmotion.evaluation.still_clips import evaluate_still_clips as evaluate_still_clips
    from stillmotion.evaluation.temporal_order.evaluate import OrderReport as OrderReport
    from stillmotion.evaluation.temporal_order.evaluate import evaluate_temporal_order as evaluate_temporal_order

__getattr__, __all__ = lazy_exports(
    __name__,
    {
        "clustering.config": ("ClusteringConfig",),
        "clustering.evaluate": ("ClusterResult", "evaluate_clustering"),
        "geometry.config": ("GeometryConfig",),
        "geometry.evaluate": ("GeometryReport", "evaluate_geometry"),
        "linear_probe.classifiers": ("logistic_probe",),
        "linear_probe.config": ("LinearProbeConfig",),
        "linear_probe.evaluate": ("LinearProbeReport", "evaluate_linear_probe"),
        "propagation.config": ("SequenceDataConfig",),
        "propagation.evaluate": ("PropagationReport", "evaluate_propagation"),
        "retrieval.config": ("RetrievalConfig",),
        "retrieval.evaluate": ("RetrievalReport", "evaluate_retrieval"),
        "static_dynamic.config": ("StaticDynamicEvalConfig",),
        "static_dynamic.evaluate": ("StaticDynamicReport", "evaluate_static_dynamic_sets"),
        "still_clips": ("StillClipsReport", "evaluate_still_clips"),
        "temporal_order.evaluate": ("OrderReport", "evaluate_temporal_order"),
    },
)
