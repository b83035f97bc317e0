"""Activities by body-worn sensors: chains with selected columns against their rivals."""
