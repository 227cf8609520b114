"""Pure tensor maths: no state, no files."""

from stillmotion.utils.lazy_exports import lazy_exports

# Not `forward_warp`: the module has the name of its function.
_EXPORTS = {
    "boxes": "box_area box_iou crop_boxes flip_boxes roi_align scale_boxes",
    "classification": "confusion_matrix label_ranks mixup_pairs smooth_one_hot soft_cross_entropy topk_accuracy",
    "contrastive": "byol_loss cross_view_loss info_nce moco_loss rescale_gradient simclr_loss sinkhorn swav_loss "
    "vicreg_loss",
    "cycle": "cycle_accuracy cycle_loss log_affinities pool_tokens separability_loss",
    "embedding_geometry": "effective_rank inter_video_distances intra_video_distance "
    "intra_video_nearest_token_distance max_token_radii video_radii",
    "knn": "knn_search l2_normalize retrieval_average_precision",
    "koopman": "PredictionLoss decompose eigenvalues prediction_loss",
    "label_propagation": "CellMatches find_nearest_cells merge_matches propagate_labels",
    "token_motion": "motion_embedding motion_vector token_displacements",
    "position_embeddings": "cell_centers crop_windows resize_grid sincos_grid",
    "segmentation_metrics": "edit_score find_segments match_segments segmentation_scores",
}
__getattr__, __all__ = lazy_exports(__name__, {module: names.split() for module, names in _EXPORTS.items()})
