"""A program with few assignments within its pins, so that the best predicted are soon proved."""

ROWS = """program "rows" {
  size I = 4
  size J = 6
  fun f(x) = x * 2.0
  input x : [[float]J]I
  kernel out = map#A(row => map#B(v => f(v), row), x)
}"""
PINS = ("out.0=1,2", "out.1=1", "out.2=1", "A=S,W0,G0")
