"""Messages of runs and series as text."""

from gridpriv.zonal.summary import notes, series_messages


def series_sentences(*given):
    """Return the messages of a series as text."""
    return [str(message) for message in series_messages(*given)]


def texts(document):
    """Return the messages of a run as text."""
    return [str(note) for note in notes(document)]
