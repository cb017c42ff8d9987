"""The handwritten digits of testdata/digits."""

import csv
import gzip
import os
import zlib

PATH = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "testdata", "digits", "digits.csv.gz")
PIXELS = 64
CLASSES = 10
TRAINING_IMAGES = 1400


def load(path):
    """Returns (training images, training labels, test images, test labels).

    An image is a list of 64 floats from 0 to 1, a label an int from 0 to 9. Raises OSError or ValueError; the message
    names path.
    """
    images, labels = [], []
    for number, row in enumerate(csv.reader(_read(path).splitlines()), 1):
        try:
            *pixels, label = map(int, row)
        except ValueError:
            raise ValueError(f"{path}: line {number} is not a list of integers") from None
        if len(pixels) != PIXELS or not 0 <= label < CLASSES:
            raise ValueError(f"{path}: line {number} is not {PIXELS} pixels and a digit")
        images.append([pixel / 16 for pixel in pixels])
        labels.append(label)
    if len(images) <= TRAINING_IMAGES:
        raise ValueError(f"{path}: {len(images)} images, want more than {TRAINING_IMAGES}")
    cut = TRAINING_IMAGES
    return images[:cut], labels[:cut], images[cut:], labels[cut:]


def _read(path):
    try:
        with gzip.open(path, "rt", encoding="ascii") as file:
            return file.read()
    except (EOFError, UnicodeDecodeError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}: damaged: {error}") from None
