"""What an encoder is carried to by further training: labels of videos, and actions in boxes."""
