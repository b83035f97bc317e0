"""Activities of older people by a batteryless radio sensor, cut into windows."""
