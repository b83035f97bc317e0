"""Features of sensors: windows, statistics, spectra, contexts, and the same of a stream."""

from crfield.features.sensors.measures import MEASURES, Sensor
from crfield.features.sensors.stream import SensorStream
from crfield.features.sensors.transformer import SensorFeatures
from crfield.features.sensors.windows import majority_labels

__all__ = ["MEASURES", "Sensor", "SensorFeatures", "SensorStream", "majority_labels"]
