"""Parts that hear and speak: voice activity, transcription, speech, and the walks over them."""
