"""What goes in and out over HTTP, as pydantic models: the source of the OpenAPI document."""
