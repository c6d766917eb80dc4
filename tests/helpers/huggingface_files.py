"""Models of transformers saved without its progress bar."""

import transformers


def save_quietly(model, path):
    """The folder, with the model in it."""
    logger = transformers.utils.logging
    bars = logger.is_progress_bar_enabled()
    logger.disable_progress_bar()
    try:
        model.save_pretrained(path)
    finally:
        if bars:
            logger.enable_progress_bar()
    return path
